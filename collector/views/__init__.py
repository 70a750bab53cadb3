"""What a screen shows, as frozen data; computed once here for both front ends."""
