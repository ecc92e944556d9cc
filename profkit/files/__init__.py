"""Files in directories that anybody may have filled: no link leads out, no pipe is waited for, none is half written."""
