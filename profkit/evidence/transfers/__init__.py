"""What goes over the bus between the host and the device, and what it is that is sent."""
