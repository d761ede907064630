"""The lab: experiments that show that the library works. The library never imports it.

``training`` trains many clients through real payloads, ``attacks`` tries to undo them, ``pictures``
draws, ``explorer`` makes the page of ``jopeq-lab explore``; ``cli`` is the command.
"""
