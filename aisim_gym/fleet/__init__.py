"""Workers and what connects them: life, placement, handoff, events, group passes."""
