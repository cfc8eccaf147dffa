"""Client of experts: candidates, retries, limits, circuit breakers and load balancing."""
