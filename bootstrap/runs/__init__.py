"""After a setup: status, logs, attaching and stopping. All of it over one login a command."""
