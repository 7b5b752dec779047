"""Many boards: campaigns in slices, given out by Slurm on a lab host to boards that have sshd and the suite alone."""
