"""A release in forms that other systems read: one module a form, all of them streams that hold one batch at a time."""
