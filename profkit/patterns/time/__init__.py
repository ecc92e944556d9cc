"""Where the time of a step goes: shares, hottest lines, waits and their causes, idling."""
