"""The lab: experiments that show that the library works. Nothing else in the library imports it.

``training`` trains many clients through real payloads, ``attacks`` tries to undo them, ``pictures``
draws, ``explorer`` makes the page of ``jopeq explore``. The command line calls this room.
"""
