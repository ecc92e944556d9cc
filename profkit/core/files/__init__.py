"""Files that anybody may have made: no link leads out of a run, no pipe is waited for, and none is half written. Also
profkit's own streams, whose readers may leave."""
