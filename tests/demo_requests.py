"""Plain requests for the offline model, over tools of plugins that do not exist.

It was tuned with the first ones. The others, over other tools, were written after that: 33 of 40 were right at first
sight.
"""

from typing import Any, NamedTuple

from anyplug.agent.request_matching import ToolSpec


class Request(NamedTuple):
    """A request, and the call that it means."""

    text: str
    tool: str
    arguments: dict[str, Any]


def _tool(plugin: str, name: str, description: str, required: str = "", /, **properties: Any) -> ToolSpec:
    shaped = {key: {"type": about} if isinstance(about, str) else about for key, about in properties.items()}
    schema = {"type": "object", "properties": shaped, "required": required.split()}
    return ToolSpec(name, f"[Plugin: {plugin}] {description}", schema)


def _one_of(*choices: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(choices)}


STRINGS = {"type": "array", "items": {"type": "string"}}
NUMBERS = {"type": "array", "items": {"type": "number"}}

TOOLS = [
    _tool(
        "weather",
        "weather_now",
        "Tell the current weather in a city.",
        "city",
        city="string",
        units=_one_of("metric", "imperial"),
    ),
    _tool(
        "weather",
        "weather_forecast",
        "Forecast the weather of a city for some days.",
        "city days",
        city="string",
        days="integer",
    ),
    _tool("notes", "note_add", "Add a note.", "text", text="string", tag="string"),
    _tool("notes", "note_search", "Search the notes for a word.", "query", query="string"),
    _tool("notes", "note_delete", "Delete a note by its number.", "id", id="integer"),
    _tool("kv", "kv_set", "Store a value under a key.", "key value", key="string", value="string"),
    _tool("kv", "kv_get", "Return the value of a key.", "key", key="string"),
    _tool("text", "text_reverse", "Reverse a text.", "text", text="string"),
    _tool(
        "text",
        "text_case",
        "Change the case of a text.",
        "text case",
        text="string",
        case=_one_of("upper", "lower", "title"),
    ),
    _tool(
        "text",
        "text_replace",
        "Replace one text with another in a text.",
        "text old new",
        text="string",
        old="string",
        new="string",
    ),
    _tool(
        "units",
        "convert_units",
        "Convert an amount between units.",
        "amount from to",
        amount="number",
        **{"from": "string", "to": "string"},
    ),
    _tool(
        "units",
        "convert_currency",
        "Convert money into another currency.",
        "amount currency",
        amount="number",
        currency=_one_of("EUR", "USD", "GBP"),
    ),
    _tool("calc", "calculate", "Calculate an arithmetic expression.", "expression", expression="string"),
    _tool("calc", "average", "Compute the average of numbers.", "numbers", numbers=NUMBERS),
    _tool("web", "fetch_page", "Fetch a web page and return its text.", "url", url="string", max_chars="integer"),
    _tool("web", "shorten_link", "Make a short link for an address.", "url", url="string"),
    _tool("git", "git_log", "Show the last commits of the repository.", "", limit="integer", author="string"),
    _tool("git", "git_diff", "Show what changed in a file.", "path", path="string", staged="boolean"),
    _tool(
        "images",
        "resize_image",
        "Resize a picture to a width.",
        "path width",
        path="string",
        width="integer",
        height="integer",
    ),
    _tool("mail", "send_mail", "Send an email.", "to subject body", to="string", subject="string", body="string"),
    _tool(
        "calendar",
        "event_create",
        "Create an event in the calendar.",
        "title date",
        title="string",
        date={"type": "string", "format": "date"},
        time="string",
    ),
    _tool("calendar", "event_list", "List the events of a day.", "date", date={"type": "string", "format": "date"}),
    _tool("dice", "roll_dice", "Roll dice.", "", sides="integer", count="integer"),
    _tool("csv", "csv_columns", "List the columns of a CSV file.", "file", file="string"),
    _tool(
        "csv",
        "csv_filter",
        "Return the rows of a CSV file in which a column has a value.",
        "file column value",
        file="string",
        column="string",
        value="string",
    ),
    _tool(
        "translate",
        "translate_text",
        "Translate a text into a language.",
        "text language",
        text="string",
        language="string",
    ),
    _tool("music", "playlist_add", "Add a song to a playlist.", "song playlist", song="string", playlist="string"),
    _tool("timer", "timer_start", "Start a timer of some minutes.", "minutes", minutes="number", label="string"),
    _tool("todo", "todo_list", "List what is to do.", "", state=_one_of("open", "done")),
    _tool("todo", "todo_tag", "Give a task some tags.", "task tags", task="integer", tags=STRINGS),
    _tool(
        "hash",
        "hash_text",
        "Compute the hash of a text.",
        "text",
        text="string",
        algorithm=_one_of("md5", "sha1", "sha256"),
    ),
    _tool("builtin", "builtin_reload_plugins", "Read all plugins again and restart what changed.", "", plugin="string"),
    _tool(
        "builtin",
        "builtin_list_plugins",
        "List the user's plugins: what each is for, its tools, and whether it can be used.",
        "",
    ),
    _tool(
        "builtin", "builtin_describe_plugin", "Describe a plugin: its tools and commands.", "plugin", plugin="string"
    ),
    _tool(
        "workspace-tools",
        "read",
        "Read a file, or list the files in a folder. A text comes with its line numbers; a picture is shown.",
        "path",
        path="string",
        offset="integer",
        limit="integer",
    ),
    _tool(
        "workspace-tools",
        "write",
        "Write a file, with the folders that it needs; overwrites what it contained.",
        "path content",
        path="string",
        content="string",
    ),
    _tool(
        "workspace-tools",
        "bash",
        "Run a shell command in the working folder, in a sandbox.",
        "command",
        command="string",
        timeout="number",
        network="boolean",
    ),
    _tool(
        "workspace-tools",
        "skill",
        "Load a skill: instructions for a kind of task, kept in a SKILL.md.",
        "",
        name="string",
    ),
]

TUNED = [
    Request("what is the weather in Oslo", "weather_now", {"city": "Oslo"}),
    Request("forecast the weather in New York for 3 days", "weather_forecast", {"city": "New York", "days": 3}),
    Request("add a note: buy milk and bread", "note_add", {"text": "buy milk and bread"}),
    Request("search my notes for bread", "note_search", {"query": "bread"}),
    Request("delete note 4", "note_delete", {"id": 4}),
    Request("call kv_set key=color value=blue", "kv_set", {"key": "color", "value": "blue"}),
    Request("get the value of color", "kv_get", {"key": "color"}),
    Request("reverse the text hello world", "text_reverse", {"text": "hello world"}),
    Request('change the case of "hello world" to upper', "text_case", {"text": "hello world", "case": "upper"}),
    Request("convert 10 miles to km", "convert_units", {"amount": 10, "from": "miles", "to": "km"}),
    Request("calculate 2 + 3 * 4", "calculate", {"expression": "2 + 3 * 4"}),
    Request("what is the average of 3, 5 and 10", "average", {"numbers": [3, 5, 10]}),
    Request("fetch the page https://example.org/news", "fetch_page", {"url": "https://example.org/news"}),
    Request("show the last 5 commits", "git_log", {"limit": 5}),
    Request("resize photo.png to width 300", "resize_image", {"path": "photo.png", "width": 300}),
    Request("create an event Dentist on 2026-12-01", "event_create", {"title": "Dentist", "date": "2026-12-01"}),
    Request("roll 2 dice", "roll_dice", {"count": 2}),
    Request("translate good morning into French", "translate_text", {"text": "good morning", "language": "French"}),
    Request("list the columns of data.csv", "csv_columns", {"file": "data.csv"}),
    Request("start a timer of 5 minutes", "timer_start", {"minutes": 5}),
    Request("hash the text secret with sha256", "hash_text", {"text": "secret", "algorithm": "sha256"}),
    Request("read README.md", "read", {"path": "README.md"}),
    Request("how is the weather in Berlin in imperial units", "weather_now", {"city": "Berlin", "units": "imperial"}),
    Request("weather forecast for Paris, 5 days", "weather_forecast", {"city": "Paris", "days": 5}),
    Request('make a note "call the bank"', "note_add", {"text": "call the bank"}),
    Request("find notes about invoices", "note_search", {"query": "invoices"}),
    Request("remove note 12", "note_delete", {"id": 12}),
    Request('store "green" under the key apple', "kv_set", {"key": "apple", "value": "green"}),
    Request("kv_get key=city", "kv_get", {"key": "city"}),
    Request("please reverse the text: never odd or even", "text_reverse", {"text": "never odd or even"}),
    Request('put "some words" in title case', "text_case", {"text": "some words", "case": "title"}),
    Request("replace cat with dog in the cat sat", "text_replace", {"text": "the cat sat", "old": "cat", "new": "dog"}),
    Request("convert 3.5 kg to pounds", "convert_units", {"amount": 3.5, "from": "kg", "to": "pounds"}),
    Request("convert 20 to EUR", "convert_currency", {"amount": 20, "currency": "EUR"}),
    Request("compute (4+5)/3", "calculate", {"expression": "(4+5)/3"}),
    Request("average of 1 2 3 4", "average", {"numbers": [1, 2, 3, 4]}),
    Request("get the web page example.com/docs", "fetch_page", {"url": "example.com/docs"}),
    Request("shorten https://example.org/a/long/path", "shorten_link", {"url": "https://example.org/a/long/path"}),
    Request("git log with limit 3", "git_log", {"limit": 3}),
    Request("what changed in src/main.py", "git_diff", {"path": "src/main.py"}),
    Request(
        "resize the picture images/cat.jpg to a width of 640", "resize_image", {"path": "images/cat.jpg", "width": 640}
    ),
    Request("list events of 2026-11-20", "event_list", {"date": "2026-11-20"}),
    Request("roll a dice with 20 sides", "roll_dice", {"sides": 20}),
    Request('translate "thank you" to Spanish', "translate_text", {"text": "thank you", "language": "Spanish"}),
    Request("which columns does sales.csv have", "csv_columns", {"file": "sales.csv"}),
    Request("set a timer for 25 minutes", "timer_start", {"minutes": 25}),
    Request("show my open todos", "todo_list", {"state": "open"}),
    Request("tag task 7 with home, urgent", "todo_tag", {"task": 7, "tags": ["home", "urgent"]}),
    Request("md5 hash of hello", "hash_text", {"text": "hello", "algorithm": "md5"}),
    Request("reload the plugins", "builtin_reload_plugins", {}),
    Request('run bash command="ls -la"', "bash", {"command": "ls -la"}),
    Request("add Imagine to the playlist Classics", "playlist_add", {"song": "Imagine", "playlist": "Classics"}),
]

UNSEEN = [
    _tool("library", "book_lookup", "Look up a book by its ISBN.", "isbn", isbn="string"),
    _tool("library", "book_reserve", "Reserve a book for a reader.", "title reader", title="string", reader="string"),
    _tool(
        "recipes",
        "recipe_find",
        "Find recipes that use an ingredient.",
        "ingredient",
        ingredient="string",
        max_minutes="integer",
    ),
    _tool(
        "recipes",
        "recipe_scale",
        "Scale a recipe to a number of servings.",
        "recipe servings",
        recipe="string",
        servings="integer",
    ),
    _tool("stocks", "stock_price", "Return the price of a share.", "symbol", symbol="string"),
    _tool(
        "stocks", "stock_history", "Return the past prices of a share.", "symbol days", symbol="string", days="integer"
    ),
    _tool("archive", "zip_create", "Create a zip archive of a folder.", "folder", folder="string", level="integer"),
    _tool("archive", "zip_list", "List the files in a zip archive.", "archive", archive="string"),
    _tool("network-tools", "ping_host", "Ping a host some times.", "host", host="string", times="integer"),
    _tool(
        "network-tools",
        "dns_lookup",
        "Look up the DNS records of a domain.",
        "domain",
        domain="string",
        type=_one_of("A", "MX", "TXT"),
    ),
    _tool(
        "home",
        "light_switch",
        "Switch the light in a room on or off.",
        "room state",
        room="string",
        state=_one_of("on", "off"),
    ),
    _tool(
        "home",
        "thermostat_set",
        "Set the temperature of a room.",
        "room temperature",
        room="string",
        temperature="number",
    ),
    _tool("json-tools", "json_format", "Format a JSON file.", "file", file="string", indent="integer"),
    _tool("qr", "qr_make", "Make a QR code for a text.", "text", text="string", size="integer"),
    _tool("password", "password_generate", "Generate a random password.", "", length="integer", symbols="boolean"),
    _tool(
        "tickets",
        "ticket_create",
        "Open a ticket in the tracker.",
        "summary",
        summary="string",
        priority=_one_of("low", "normal", "high"),
    ),
    _tool("tickets", "ticket_close", "Close a ticket.", "ticket", ticket="integer"),
    _tool(
        "tickets",
        "ticket_assign",
        "Assign a ticket to somebody.",
        "ticket assignee",
        ticket="integer",
        assignee="string",
    ),
    _tool("pdf", "pdf_merge", "Merge PDF files into one.", "files output", files=STRINGS, output="string"),
    _tool("pdf", "pdf_pages", "Count the pages of a PDF file.", "path", path="string"),
    _tool("chat-rooms", "room_post", "Post a message in a room.", "room message", room="string", message="string"),
    _tool("statistics", "median", "Compute the median of numbers.", "values", values=NUMBERS),
    _tool(
        "statistics",
        "percentage",
        "Compute what percentage one number is of another.",
        "part whole",
        part="number",
        whole="number",
    ),
    _tool("movies", "movie_rating", "Return the rating of a movie.", "title", title="string", year="integer"),
    _tool("dictionary", "define", "Define a word.", "word", word="string"),
    *[
        tool
        for tool in TOOLS
        if tool.name in {"builtin_list_plugins", "builtin_describe_plugin", "read", "write", "bash", "skill"}
    ],
]

HELD_OUT = [
    Request("look up the book with isbn 9780140449136", "book_lookup", {"isbn": "9780140449136"}),
    Request('reserve "Dune" for Alice', "book_reserve", {"title": "Dune", "reader": "Alice"}),
    Request("find recipes with spinach", "recipe_find", {"ingredient": "spinach"}),
    Request("which recipes use lentils", "recipe_find", {"ingredient": "lentils"}),
    Request("scale the recipe pancakes to 6 servings", "recipe_scale", {"recipe": "pancakes", "servings": 6}),
    Request("what is the price of AAPL", "stock_price", {"symbol": "AAPL"}),
    Request("stock price for MSFT", "stock_price", {"symbol": "MSFT"}),
    Request("show the prices of TSLA for the past 30 days", "stock_history", {"symbol": "TSLA", "days": 30}),
    Request("create a zip of the folder ./docs", "zip_create", {"folder": "./docs"}),
    Request("list the files in backup.zip", "zip_list", {"archive": "backup.zip"}),
    Request("ping example.org 3 times", "ping_host", {"host": "example.org", "times": 3}),
    Request("ping host=10.0.0.1", "ping_host", {"host": "10.0.0.1"}),
    Request("dns lookup of example.com", "dns_lookup", {"domain": "example.com"}),
    Request("look up the MX records of example.net", "dns_lookup", {"domain": "example.net", "type": "MX"}),
    Request("switch the light in the kitchen off", "light_switch", {"room": "kitchen", "state": "off"}),
    Request("turn on the light in the bedroom", "light_switch", {"room": "bedroom", "state": "on"}),
    Request("set the temperature of the bathroom to 22", "thermostat_set", {"room": "bathroom", "temperature": 22}),
    Request("format config.json", "json_format", {"file": "config.json"}),
    Request("format the JSON file data/a.json with indent 2", "json_format", {"file": "data/a.json", "indent": 2}),
    Request("make a qr code for https://example.org", "qr_make", {"text": "https://example.org"}),
    Request('make a QR code of "hello there"', "qr_make", {"text": "hello there"}),
    Request("generate a password of length 16", "password_generate", {"length": 16}),
    Request("generate a random password with symbols", "password_generate", {"symbols": True}),
    Request("open a ticket: the printer is broken", "ticket_create", {"summary": "the printer is broken"}),
    Request(
        'create a high priority ticket "login fails"', "ticket_create", {"summary": "login fails", "priority": "high"}
    ),
    Request("close ticket 42", "ticket_close", {"ticket": 42}),
    Request("assign ticket 7 to Bob", "ticket_assign", {"ticket": 7, "assignee": "Bob"}),
    Request("how many pages does thesis.pdf have", "pdf_pages", {"path": "thesis.pdf"}),
    Request("count the pages of reports/may.pdf", "pdf_pages", {"path": "reports/may.pdf"}),
    Request('post "lunch at noon" in the room general', "room_post", {"room": "general", "message": "lunch at noon"}),
    Request("median of 4, 8, 15, 16", "median", {"values": [4, 8, 15, 16]}),
    Request("what percentage is 30 of 120", "percentage", {"part": 30, "whole": 120}),
    Request("rating of the movie Alien", "movie_rating", {"title": "Alien"}),
    Request("define serendipity", "define", {"word": "serendipity"}),
    Request("define the word petrichor", "define", {"word": "petrichor"}),
    Request("list my plugins", "builtin_list_plugins", {}),
    Request("describe the plugin recipes", "builtin_describe_plugin", {"plugin": "recipes"}),
    Request("read the file notes/todo.md", "read", {"path": "notes/todo.md"}),
    Request('write "hello" to greeting.txt', "write", {"path": "greeting.txt", "content": "hello"}),
    Request('run the command "git status"', "bash", {"command": "git status"}),
]
