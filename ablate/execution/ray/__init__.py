"""The engine that trains on a Ray cluster. Ray Tune schedules, places and retries jobs and keeps their checkpoints."""
