"""What serves a language model: the steps of an engine, the replays of graphs, and loops that generate token by token.

Decisions, and why they were made:

- A step is known by the name of its range (``names.py``). What an engine does between two ranges belongs to the first:
  it samples, waits and schedules there.
- The recording cannot tell how busy the server was before. So a gap between two steps is named after what the host did
  in it, and a gap longer than three usual steps is a lack of requests.
- Replays are judged without names as well (``replays.py``): any program that replays a graph has gaps between.
"""
