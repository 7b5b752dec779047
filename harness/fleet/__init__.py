"""Many boards: campaigns in slices, distributed by Slurm on a lab host to boards that only have sshd and the suite."""
