"""Tables in, fitted transforms of inputs and target out; nothing here knows a kernel."""
