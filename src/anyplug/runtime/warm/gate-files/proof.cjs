// A script that only tells that it ran: an interpreter that gets here without a call did not wait at the gate.
require("node:fs").writeSync(1, "ran\n");
