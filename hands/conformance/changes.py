"""What the author of a hand type must change, in one sentence for each check that can fail.

By the check's name. What was otherwise than it should be, the verdict's detail says; this says
where to look. It is said of whatever language the type is written in.
"""

from collections.abc import Mapping

CHANGES: Mapping[str, str] = {
    # What it says of itself.
    "described_whole": "Give each tool in Describe a name of its own, a description, and an "
    "input_schema that is JSON of an object with type object.",
    "as_claude_knows_them": "Rename the tool, or give its schema exactly the fields that Claude "
    "knows it with.",
    "tools_of_capabilities": "Add the tools that are missing, or take the capability out of "
    "Describe.",
    "listed_by_the_hand": "List all the hand's tools in its ProvisionResult, and none in Describe, "
    "or take lists_tools out of its capabilities.",
    "listed_again": "Keep the tools with the hand: what it lists stays the same for its life.",
    "unknown_tool": "Refuse a name that Describe does not list with TOOL_NOT_FOUND, and say the "
    "name in the message.",
    "input_refused_by_field": "Check the input against the tool's schema before anything runs, and "
    "refuse with INPUT_INVALID whose metadata has `field`.",
    "input_no_object": "Refuse input that is no JSON object with INPUT_INVALID; empty, too deep or "
    "not UTF-8 is none.",
    "refused_runs_nothing": "Check the whole input before the first effect, and leave the hand as "
    "it was.",
    "probed": "Have Probe say ready, or give in `reason` what is missing here and how to get it.",
    "unknown_type": "Refuse a type that Describe does not list with HAND_TYPE_NOT_FOUND.",
    # Hands.
    "ready_in_time": "Send exactly one result, last, once the hand can run a call, within 30 s; "
    "do the slow part beforehand.",
    "limit_refused": "Enforce the limit, or list it in Probe's not_enforceable and refuse it with "
    "LIMIT_NOT_ENFORCEABLE before anything is made.",
    "config_refused": "Check the config first, and refuse with INVALID_FIELD whose `field` is "
    "`config` or `config.NAME`.",
    "provisioned_again": "Keep the result and a digest of the request by hand_id: answer the same "
    "request from it, and another with ID_REUSED.",
    "provisioned_at_once": "Make the hand in a task of its own, not in the stream's: a caller that "
    "goes away cancels only the stream.",
    "unknown_hand": "Look the hand up by hand_id and the driver's session_id, and refuse with "
    "HAND_NOT_FOUND when there is none.",
    "bad_ids": "Refuse an id that is not 1 to 128 letters, digits, `_` and `-` with INVALID_FIELD, "
    "and name its field.",
    "released": "Have Release kill the hand within 5 s and answer ended=true each time, and keep "
    "the id so that Provision refuses it with HAND_GONE.",
    "ended": "Forget the hand in Release and answer ended=true however often, and refuse an "
    "Execute on a hand_id that is not there with the status NOT_FOUND.",
    "nothing_left": "End everything the hand started, also what left its session or process group, "
    "and remove its mounts, groups and folder, before Release answers.",
    # Calls.
    "runs_once": "Keep each call's digest, output and result by call_id, answer the same request "
    "from them, and another input with ID_REUSED.",
    "runs_once_at_once": "Note the call_id before the call starts, so that whoever comes with it "
    "meanwhile watches the one that runs.",
    "from_an_offset": "Begin the output at the request's output_offset, counted in bytes.",
    "in_order": "Put a hand's calls into one queue, and start each when the one before has its "
    "result.",
    "apart": "Give each hand a queue, a folder and an environment of its own.",
    "cancelled_before": "Note a call_id that Cancel names and nobody knows, answer TOMBSTONE, and "
    "refuse its Execute with CALL_CANCELLED for ever.",
    "cancelled_after": "Have Cancel answer TERMINAL and change nothing when the call has its "
    "result.",
    "cancelled_while_it_runs": "Have Cancel stop the call with that call_id, and let its Execute "
    "end with a result of outcome cancelled within 5 s.",
    "asked_again": "Keep a call's steps by call_id, answer the same call from them, and list it "
    "in unacknowledged_call_ids of ListHands until Acknowledge names it.",
    "left_and_asked_again": "Run a call apart from the stream that asked for it, list it in "
    "open_call_ids until it ends, and let an Execute with its call_id watch it.",
    "cancelled_in_line": "Take a call that waits out of the queue and give it the outcome "
    "cancelled at once.",
    "acknowledged": "Free the output at Acknowledge, but keep the call_id and its outcome until "
    "the release, and answer from them.",
    "acknowledged_too_early": "Refuse Acknowledge of a call without a result with CALL_RUNNING.",
    "claimed": "Have Claim answer one entry for each call_id asked, in that order, with journal_id "
    "and boot_id, and start nothing.",
    "fenced": "Keep the highest epoch of each session, raise it at every request, and refuse a "
    "lower one with STALE_EPOCH before all else.",
    # What breaks.
    "stream_cut": "Run the call apart from the stream that asked for it, and keep its output for "
    "the next stream.",
    "cut_and_stopped": "When the stream of an Execute is cut under you, stop the call and all it "
    "started, as for Cancel.",
    "connection_cut": "Keep calls by call_id and not by connection.",
    "nobody_listens": "Read what the call writes whether or not anyone watches, and bound what is "
    "kept of it.",
    "hand_killed": "Watch the hand's process; when it dies give its open calls the outcome lost "
    "within 2 s, and refuse later ones with HAND_GONE.",
    "server_killed": "Have the server take its hands up again at its start with their calls, or "
    "kill all that is left of them.",
    "server_killed_between_calls": "Have the server take up its hands at its start, or take "
    "`adopt` out of Describe and refuse their calls with HAND_GONE.",
    "killed_while_provisioning": "At the server's start remove what is left of hands that were "
    "being made, so that the same Provision makes them anew.",
    "server_stopped": "Let no timer of the server's own end a call, and keep output that comes "
    "while it stands still.",
    # A shell.
    "merged_in_order": "Give the command one pipe for standard output and standard error, and set "
    "exit_code.",
    "silent": "Answer as soon as the command ends, and put a text such as `[no output]` in the "
    "place of nothing.",
    "input_is_empty": "Start commands with standard input from /dev/null.",
    "no_terminal": "Start commands in a session of their own without a terminal, with PAGER=cat "
    "and GIT_TERMINAL_PROMPT=0.",
    "carries_over": "Note the working directory and the exported variables at the end of each "
    "command, and begin the next with them.",
    "reset_is_said": "When the working directory is gone, begin in another and say so in the "
    "result.",
    "restarted": "Have restart kill what runs in the background, forget what was exported, and "
    "begin in the workspace.",
    "whatever_ends_it": "Start a fresh shell for each call, or another one when it ended.",
    "any_bytes": "Decode output as UTF-8 with replacement, over the pieces in which it comes.",
    "no_zombies": "Reap every child, also those that become yours when their parent ends.",
    "locale": "Set LANG=C.UTF-8 and TZ for each command, not only for the first.",
    "timed_out": "At the time limit kill the whole tree, also what left its process group, and "
    "give the outcome timed_out.",
    "cancelled": "At a cancel without grace kill the whole tree at once, and give the outcome "
    "cancelled.",
    "cancelled_with_grace": "Send TERM to the whole tree first, and KILL once the grace is over.",
    "in_the_background": "End the call when its command ends, count what runs on in `background`, "
    "and throw away what that writes later.",
    "noisy_in_the_background": "Do not wait for the end of the pipe: a short while after the "
    "command ended the call is over.",
    "one_long_line": "Cap the text of a result, and count all bytes in output_bytes.",
    "no_text_at_all": "Apply the cap after decoding: a byte that is no text becomes three.",
    "head_and_tail": "Keep the beginning and the end of the output in bounded memory, and count "
    "what is left out in omitted_bytes.",
    "endless": "Kill a command whose output passes some total, with the outcome error.",
    "fork_bombs": "Limit the number of processes, by a control group say, and kill the whole tree "
    "before the next call.",
    "out_of_memory": "Put commands into a memory group whose end is not the hand's, and name the "
    "limit in the result.",
    "disk_full": "Give the hand a disk of its own of that size, and keep what you need yourself "
    "elsewhere.",
    # Files.
    "round_trip": "Write and read bytes as they are, and make the folders on the way.",
    "same_files": "Have file tools work in the shell's own workspace, with nothing cached.",
    "edited": "Have edit refuse text that does not occur exactly once, and write nothing then.",
    "found": "Have glob match `**` and braces, and grep take a Python regular expression and "
    "answer `path:line:text`.",
    "pictures": "Attach a picture that is read instead of decoding it, or give an error that says "
    "it is one.",
    "missing": "Answer a file that is not there with the outcome error and its path.",
    "outside": "Resolve each path beneath the workspace, as openat2 with RESOLVE_BENEATH does, and "
    "refuse what leads out.",
    "links_outside": "Follow no symbolic link out of the workspace, to read, to write or to make.",
    "swapped": "Open paths beneath a descriptor of the workspace, not by checking a name and "
    "opening it afterwards.",
    "swapped_to_write": "Write beneath a descriptor of the workspace: between a check and the "
    "write a folder may become a link.",
    "no_plain_file": "Open with O_NONBLOCK, look at what it is, and refuse what is no plain file.",
    # Isolated.
    "files_outside": "Give the hand a root file system of its own, or take `isolated` out of "
    "Describe.",
    "processes_outside": "Give the hand a pid namespace and a /proc of its own.",
    "environment_outside": "Start the hand with an environment that you make, never with the "
    "server's own.",
    "no_privileges": "Run the hand as a user of its own, without capabilities, with no_new_privs "
    "and a filter of system calls.",
    "no_namespaces": "Filter unshare, clone with namespaces, mount and io_uring out of what the "
    "hand may call.",
    "no_way_out": "Give the hand a network namespace of its own with nothing in it.",
    "only_what_is_allowed": "Hold each request to the egress rules in a proxy outside of the hand.",
    "owned_by_the_hand": "Run what writes into a bound workspace as the workspace's owner.",
    # Events.
    "asked_what_it_says": "Have Events answer what the hand said, or wait, or end without any, at "
    "any time from its Provision on.",
    "says_until_it_is_heard": "Keep what a hand said until an EventsRequest acknowledges it, and "
    "say it in each answer until then.",
    # A person.
    "person_in": "Run the command of a `shell` tunnel without a terminal, give its standard output "
    "as data and its errors as error, and its exit code with the end.",
    "person_types": "Give what a person sends to the command's standard input, and close that when "
    "they send `end`.",
    "copied": "Give a `copy` tunnel's files as an archive that a copy the other way takes, in the "
    "hand's workspace.",
    "taken": "Hold the calls that have not begun while a tunnel with `take` is open.",
    "person_leaves_nothing": "Kill all that a tunnel started, also what left its session, when the "
    "tunnel's stream ends.",
    "nobody_in_no_hand": "Look the hand up by hand_id and session_id before anyone is let in, and "
    "refuse with HAND_NOT_FOUND when there is none.",
    # Its screen.
    "shows_itself": "Have `view` give the screen as image/png or image/jpeg of at most 2 MiB, as "
    "soon as the hand is made.",
    "shows_the_next_once_seen": "Send the next picture of a `view` tunnel when the frame `S` says "
    "that the last was seen, and the newest then.",
    "calls_go_on_beside": "Draw the screen beside the calls, and let none of them wait for who "
    "watches.",
    "nobody_watches_no_hand": "Look the hand up by hand_id and session_id before anyone watches "
    "it, and refuse with HAND_NOT_FOUND when there is none.",
    "waits_for_control": "Hold the calls that have not begun while a `control` tunnel is open, and "
    "let go of what is down before the first of them.",
    "odd_events": "Have `control` raise what the person should read for an event that it does not "
    "know, and go on with the next.",
    # Units.
    "units_named": "Name each unit in Describe once, at most 256 with labels of 64 KiB, by an id "
    "of letters, digits, `_` and `-`.",
    "unit_alone": "Note who holds a unit before anything is done to it, show it as `holder`, and "
    "refuse with AT_CAPACITY when none that fits is free.",
    "unit_freed": "Forget the holder when its hand is released and its unit reset, so that the "
    "next hand gets it.",
    "labels_refused": "Take `unit` out of the config, and refuse labels that no unit has with "
    "INVALID_FIELD whose `field` is `config.unit`.",
    "unit_kept": "Keep on disk who holds a unit, and at the server's start reset it only when that "
    "hand is dead.",
    "unit_reset": "Have ResetUnit answer when it is asked twice, and leave a unit of which a hand "
    "can be made again.",
    "unknown_unit": "Refuse ResetUnit of a unit_id that Describe does not name with the status "
    "INVALID_ARGUMENT and a message, and never answer a reset that failed.",
    # Visual.
    "screenshot": "Attach the image with its SHA-256, size and media type, and put a text that "
    "says so into content.",
}
