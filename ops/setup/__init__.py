"""Makes a checkout ready to run, from locked versions. Standard library only: it runs before anything is installed."""
