"""Many runs from one command: axes to jobs, jobs to worker processes, results to one table. No torch."""
