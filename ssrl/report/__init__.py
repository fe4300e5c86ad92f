"""Pages and plots made from run folders."""
