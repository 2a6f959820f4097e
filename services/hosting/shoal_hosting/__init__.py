"""What every service process needs around its application."""
