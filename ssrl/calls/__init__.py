"""What every call to the outside needs: a deadline, retries, a rate, a cache, and a threshold of failures."""
