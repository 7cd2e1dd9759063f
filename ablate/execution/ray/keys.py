"""The keys of Ray Tune's configurations and results that the driver and the actors share."""

from __future__ import annotations

JOB = "job"
"""Key of a configuration: the job."""
SEAT = "seat"
"""Key of a configuration: the seat of the job."""
LEFT = "left"
"""Key of a configuration: the checkpoints of the job from an earlier driver."""
MESSAGES = "messages"
"""Key of a result: the messages for the driver."""
STEPS = "steps"
"""In a result with a checkpoint: optimizer steps done."""
LOSS = "loss"
"""In a result with a checkpoint: the last validation loss."""
