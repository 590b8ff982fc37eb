"""Load: when each request is due (plans, pure), and the live driver that sends it then, in worker processes."""
