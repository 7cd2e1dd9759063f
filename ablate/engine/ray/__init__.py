"""The engine that trains on a Ray cluster: Ray Tune schedules, places, retries and keeps checkpoints; we bring jobs."""
