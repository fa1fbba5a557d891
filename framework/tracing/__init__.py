"""What a run's streams did and when: spans of compute, copies, reading and waiting. No torch until a run is watched."""
