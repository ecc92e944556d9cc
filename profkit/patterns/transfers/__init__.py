"""What goes over the bus between the host and the device, and what is sent."""
