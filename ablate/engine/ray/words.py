"""The words of Ray Tune's configurations and results that the driver and the actors share."""

from __future__ import annotations

JOB = "job"
"""In a configuration: the job."""
SEAT = "seat"
"""In a configuration: what is reserved for it."""
LEFT = "left"
"""In a configuration: checkpoints that an earlier driver left of it."""
MESSAGES = "messages"
"""In a result: what is to be passed on to the driver."""
STEPS = "steps"
"""In a result with a checkpoint: optimiser steps done."""
LOSS = "loss"
"""In a result with a checkpoint: the last validation loss."""
