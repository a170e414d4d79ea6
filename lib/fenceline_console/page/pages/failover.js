// @ts-check
import { html, Nothing } from "../ui.js";
export const Failover = () => html`<h1>Failover</h1><${Nothing} title="Not built yet" />`;
