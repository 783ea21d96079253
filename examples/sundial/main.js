#!/usr/bin/env node
// Tells how long the day is, from the latitude and the date alone.

const readline = require("node:readline");

const send = (frame) => process.stdout.write(JSON.stringify(frame) + "\n");
const radians = (degrees) => (degrees * Math.PI) / 180;

const SUN_EDGE = -0.833; // degrees: the sun's upper edge, seen through the air, is on the horizon
const TILT = 23.44; // degrees of the Earth's axis

function daylight(latitude, date = new Date().toISOString().slice(0, 10)) {
  if (typeof latitude !== "number" || !(Math.abs(latitude) <= 90)) throw new Error("latitude must be between -90 and 90");
  const day = new Date(`${date}T12:00:00Z`);
  if (Number.isNaN(day.getTime())) throw new Error(`"${date}" is no date such as 2025-06-21`);
  const number = (day - Date.UTC(day.getUTCFullYear(), 0, 0)) / 86_400_000;
  const declination = radians(-TILT) * Math.cos((2 * Math.PI * (number + 10)) / 365.25);
  const place = radians(latitude);
  const cosine =
    (Math.sin(radians(SUN_EDGE)) - Math.sin(place) * Math.sin(declination)) /
    (Math.cos(place) * Math.cos(declination));
  const hours = (Math.acos(Math.min(1, Math.max(-1, cosine))) * 24) / Math.PI;
  return { date, latitude, hours: Math.round(hours * 100) / 100 };
}

function say({ date, latitude, hours }) {
  const bar = "·".repeat(12 - Math.round(hours / 2)) + "☀".repeat(Math.round(hours / 2));
  return `${date} at ${latitude}°: ${hours.toFixed(2)} hours of daylight\n${bar}`;
}

const answers = {
  tool_call({ id, args }) {
    try {
      const found = daylight(args.latitude, args.date);
      const content = [{ type: "text", text: say(found) }];
      return { type: "tool_result", id, content, structured_content: found };
    } catch (error) {
      return { type: "tool_result", id, content: [{ type: "text", text: error.message }], is_error: true };
    }
  },
  command_invoked({ id, args = "" }) {
    try {
      const [latitude, date] = args.split(/\s+/).filter(Boolean);
      if (latitude === undefined) throw new Error("say where: /sundial 52.5 [2025-06-21]");
      return { type: "command_response", id, action: "display", display: say(daylight(Number(latitude), date)) };
    } catch (error) {
      return { type: "command_response", id, action: "noop", error: error.message };
    }
  },
};

send({ type: "hello", name: "sundial", version: "1.0.0", capabilities: ["commands", "tools"] });
send({ type: "register_command", name: "sundial", description: "how long the day is at a latitude" });
send({
  type: "register_tool",
  name: "daylight",
  description: "Tell how many hours of daylight a latitude has on a date.",
  schema: {
    type: "object",
    properties: {
      latitude: { type: "number", minimum: -90, maximum: 90, description: "Degrees; south is negative" },
      date: { type: "string", description: "Such as 2025-06-21; today if left out" },
    },
    required: ["latitude"],
  },
});
send({ type: "ready" });

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (line) => {
  let frame;
  try {
    frame = JSON.parse(line);
  } catch {
    return; // not a frame
  }
  if (Object.hasOwn(answers, frame?.type)) {
    send(answers[frame.type](frame));
  } else if (frame?.type === "shutdown") {
    send({ type: "shutdown_ack" });
    lines.close(); // nothing is left to wait for, so Node ends
  }
});
