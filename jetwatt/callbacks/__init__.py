"""Callbacks for the training loops of libraries, a module each; a module imports its library, so import one of them."""
