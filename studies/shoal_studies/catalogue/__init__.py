"""One module or folder for each study, or for a few that share their learner."""
