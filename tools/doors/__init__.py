"""Renderings before their real consumers: heavy programs in environments of their own."""
