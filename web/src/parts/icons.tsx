// The icons of the navigation: strokes in the colour of the text.
const PATHS: Record<string, string> = {
  tools: "M14.5 5.5a4 4 0 0 0-5.2 5.2L4 16v4h4l5.3-5.3a4 4 0 0 0 5.2-5.2L16 12l-4-4z",
  plugins: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  activity: "M3 12h4l3-8 4 16 3-8h4",
  policy: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6zM9 12l2 2 4-4",
  extensions: "M4 4h7v7H4zM13 13h7v7h-7zM4 13h7v7H4zM16.5 4v7M13 7.5h7",
  chat: "M4 5h16v11H9l-5 4z",
  fleet: "M12 4v6M12 10l-6 5M12 10l6 5M10 3h4v3h-4zM4 15h4v4H4zM16 15h4v4h-4z",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  more: "M5 12h.01M12 12h.01M19 12h.01",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
