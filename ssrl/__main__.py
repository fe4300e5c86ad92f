"""`python -m ssrl`."""

from ssrl.app import main

if __name__ == "__main__":
    main()
