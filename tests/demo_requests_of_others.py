"""More plain requests for the offline model: tools as plugins of five formats name and describe them.

Eighteen of the first twenty were right at first sight; those that were not showed what to improve. The other twenty
were tried only after that: sixteen were right at first sight.
"""

from demo_requests import STRINGS, Request, _one_of, _tool

TOOLS_OF_OTHERS = [
    _tool(
        "image",
        "image_resizeToFit",
        "Resize a picture so that it fits.",
        "inputPath maxWidth",
        inputPath={"type": "string", "description": "The picture's file."},
        maxWidth={"type": "number", "description": "The largest width, in pixels."},
        keepAspect="boolean",
    ),
    _tool("image", "image_grayscale", "Convert a picture to grayscale.", "inputPath", inputPath="string"),
    _tool(
        "garden",
        "garden_water_plant",
        "Note that a plant was watered.",
        "plant_name litres",
        plant_name="string",
        litres="number",
    ),
    _tool(
        "garden",
        "garden_add_plant",
        "Add a plant to the garden.",
        "plant_name",
        plant_name="string",
        outdoors="boolean",
    ),
    _tool("garden", "garden_list_plants", "List all plants of the garden."),
    _tool("pomo", "pomo_begin", "Start a pomodoro.", "minutes", minutes="integer", label="string"),
    _tool("pomo", "pomo_status", "Tell how the pomodoro is going."),
    _tool(
        "tracker",
        "mcp_tracker_issue_comment",
        "Add a comment to an issue.",
        "issue_number body",
        issue_number="integer",
        body="string",
    ),
    _tool(
        "tracker",
        "mcp_tracker_issue_list",
        "List issues.",
        "",
        state=_one_of("open", "closed", "all"),
        assignee={"type": ["string", "null"]},
        labels=STRINGS,
    ),
    _tool(
        "money",
        "split_bill",
        "Split a bill between people.",
        "amount people",
        amount="number",
        people="integer",
        tip_percent="number",
    ),
    _tool(
        "money", "unit_price", "Compute the price of one piece.", "total quantity", total="number", quantity="number"
    ),
    _tool(
        "rooms", "book_room", "Book a room.", "room date start_time", room="string", date="string", start_time="string"
    ),
    _tool("rooms", "free_rooms", "List the rooms that are free on a day.", "date", date={"type": "string"}),
    _tool(
        "phone",
        "send_sms",
        "Send a text message to a phone.",
        "phoneNumber message",
        phoneNumber="string",
        message="string",
    ),
    _tool(
        "words", "spell_check", "Check the spelling of a text.", "text", text="string", lang=_one_of("en", "de", "fr")
    ),
    _tool("words", "slugify", "Make a slug for addresses out of a title.", "title", title="string"),
    _tool("words", "sort_lines", "Sort the lines of a text.", "text", text="string", descending="boolean"),
    _tool("web", "http_status", "Explain an HTTP status code.", "code", code="integer"),
    _tool(
        "trains",
        "train_departures",
        "List the next departures at a station.",
        "station",
        station="string",
        limit="integer",
    ),
    _tool(
        "trains",
        "train_connection",
        "Find a train connection between two stations.",
        "origin destination",
        origin="string",
        destination="string",
        date={"type": "string", "format": "date"},
    ),
    _tool("codec", "encode_base64", "Encode a text as Base64.", "input", input="string"),
    _tool("codec", "decode_base64", "Decode Base64 to a text.", "input", input="string"),
    _tool("sky", "lunar_phase", "Tell the phase of the moon on a day.", "", date="string"),
    _tool("workspace-tools", "read", "Read a file: a text with its line numbers, or a picture.", "path", path="string"),
    _tool("workspace-tools", "bash", "Run a shell command in the working folder.", "command", command="string"),
]

SEEN = [
    Request("resize logo.png to a max width of 800", "image_resizeToFit", {"inputPath": "logo.png", "maxWidth": 800}),
    Request("make cat.jpg grayscale", "image_grayscale", {"inputPath": "cat.jpg"}),
    Request("water the basil with 2 litres", "garden_water_plant", {"plant_name": "basil", "litres": 2}),
    Request("add a plant called monstera", "garden_add_plant", {"plant_name": "monstera"}),
    Request("which plants do I have", "garden_list_plants", {}),
    Request("start a pomodoro of 25 minutes", "pomo_begin", {"minutes": 25}),
    Request(
        "comment on issue 12: looks good to me",
        "mcp_tracker_issue_comment",
        {"issue_number": 12, "body": "looks good to me"},
    ),
    Request("list closed issues", "mcp_tracker_issue_list", {"state": "closed"}),
    Request("split a bill of 84.50 between 4 people", "split_bill", {"amount": 84.5, "people": 4}),
    Request("unit price if the total is 12 and the quantity is 3", "unit_price", {"total": 12, "quantity": 3}),
    Request(
        "book the room Atlantis on 2026-12-03 at 14:00",
        "book_room",
        {"room": "Atlantis", "date": "2026-12-03", "start_time": "14:00"},
    ),
    Request("which rooms are free on 2026-12-04", "free_rooms", {"date": "2026-12-04"}),
    Request(
        "send an sms to +4915112345678 saying I am late",
        "send_sms",
        {"phoneNumber": "+4915112345678", "message": "I am late"},
    ),
    Request("check the spelling of recieve the parcel", "spell_check", {"text": "recieve the parcel"}),
    Request("slugify Ten Ways to Cook Rice", "slugify", {"title": "Ten Ways to Cook Rice"}),
    Request("what does http status 418 mean", "http_status", {"code": 418}),
    Request("next 3 departures from Utrecht", "train_departures", {"station": "Utrecht", "limit": 3}),
    Request("find a train from Berlin to Prague", "train_connection", {"origin": "Berlin", "destination": "Prague"}),
    Request("decode aGVsbG8= from base64", "decode_base64", {"input": "aGVsbG8="}),
    Request("sort these lines descending: pear, apple", "sort_lines", {"text": "pear, apple", "descending": True}),
]

FRESH = [
    Request("turn photos/dog.png into grayscale", "image_grayscale", {"inputPath": "photos/dog.png"}),
    Request(
        "resize banner.webp to max width 1200 and keep aspect",
        "image_resizeToFit",
        {"inputPath": "banner.webp", "maxWidth": 1200, "keepAspect": True},
    ),
    Request("water tomato with 1.5 litres", "garden_water_plant", {"plant_name": "tomato", "litres": 1.5}),
    Request("add the plant fern, it is outdoors", "garden_add_plant", {"plant_name": "fern", "outdoors": True}),
    Request("show me all plants", "garden_list_plants", {}),
    Request("begin a pomodoro of 50 minutes with label writing", "pomo_begin", {"minutes": 50, "label": "writing"}),
    Request("how is my pomodoro going", "pomo_status", {}),
    Request(
        'add the comment "fixed in main" to issue 7',
        "mcp_tracker_issue_comment",
        {"issue_number": 7, "body": "fixed in main"},
    ),
    Request(
        "show open issues with labels bug, ui", "mcp_tracker_issue_list", {"state": "open", "labels": ["bug", "ui"]}
    ),
    Request(
        "split a bill of 120 among 5 people, tip percent 10",
        "split_bill",
        {"amount": 120, "people": 5, "tip_percent": 10},
    ),
    Request(
        "book room Neptune for 2027-01-15 at 09:30",
        "book_room",
        {"room": "Neptune", "date": "2027-01-15", "start_time": "09:30"},
    ),
    Request("are there free rooms on 2027-02-01", "free_rooms", {"date": "2027-02-01"}),
    Request(
        'send "dinner is ready" to the phone number +15551234567',
        "send_sms",
        {"phoneNumber": "+15551234567", "message": "dinner is ready"},
    ),
    Request('spell check "das ist gudt" in de', "spell_check", {"text": "das ist gudt", "lang": "de"}),
    Request("make a slug of Hello Brave New World", "slugify", {"title": "Hello Brave New World"}),
    Request("explain status code 503", "http_status", {"code": 503}),
    Request("departures from Basel SBB", "train_departures", {"station": "Basel SBB"}),
    Request(
        "train connection from Oslo to Bergen on 2026-12-24",
        "train_connection",
        {"origin": "Oslo", "destination": "Bergen", "date": "2026-12-24"},
    ),
    Request("encode hello there as base64", "encode_base64", {"input": "hello there"}),
    Request("what is the phase of the moon on 2026-12-31", "lunar_phase", {"date": "2026-12-31"}),
]
