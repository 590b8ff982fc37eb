"""The engine's decisions: requests, blocks, schedule, loop. Standard library only; knows no tensor, wire or clock."""
