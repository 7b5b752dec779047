"""From a goal, such as the least time under a power budget, to a power mode, spending as few profiles as possible."""
