"""What every service process needs around its application; knows nothing of rounds or shares."""
