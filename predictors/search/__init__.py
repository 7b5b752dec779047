"""Plans and contests: what meets files, boards and devices."""
