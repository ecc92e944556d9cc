"""One rank of a launch: what it exchanged with others, when it waited for that, and on what it worked meanwhile."""
