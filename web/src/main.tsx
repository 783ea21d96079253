// The console: one page that talks to the HTTP API of the host that served it.
import "./base/page_key";
import { render } from "preact";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/pages.css";
import { connect } from "./base/live";
import { followLinks } from "./base/route";
import { showAllTextSafely } from "./base/safe_text";
import { Shell } from "./shell";

showAllTextSafely();
followLinks();
connect();
render(<Shell />, document.getElementById("app")!);
