// @ts-check
import { html, Nothing } from "../ui.js";
export const Spark = () => html`<h1>Spark</h1><${Nothing} title="Not built yet" />`;
