"""Text as people read it and as it is safe to show: sanitized, redacted, with sizes."""
