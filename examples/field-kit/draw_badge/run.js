#!/usr/bin/env node
// Draws a badge. Files that a tool leaves in /tmp/<plugin> go back to whoever called it.

const fs = require("node:fs");

const { name } = JSON.parse(fs.readFileSync(0, "utf8"));
const { greeting } = JSON.parse(fs.readFileSync("../config.json", "utf8"));
const plain = (text) => text.replace(/[<>&"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

fs.mkdirSync("/tmp/field-kit", { recursive: true });
fs.writeFileSync(
  "/tmp/field-kit/badge.svg",
  `<svg xmlns="http://www.w3.org/2000/svg" width="320" height="120" font-family="sans-serif" text-anchor="middle">
  <rect width="320" height="120" rx="12" fill="#1f4e5f"/>
  <text x="160" y="40" fill="#bcd8d8" font-size="20">${plain(greeting)}, I am</text>
  <text x="160" y="88" fill="white" font-size="36">${plain(name)}</text>
</svg>
`,
);
console.log(JSON.stringify({ drawn: "badge.svg" }));
