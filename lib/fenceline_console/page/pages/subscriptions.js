// @ts-check
import { html, Nothing } from "../ui.js";
export const Subscriptions = () => html`<h1>Subscriptions</h1><${Nothing} title="Not built yet" />`;
export const TopicSubscriptions = () => html`<h1>TopicSubscriptions</h1><${Nothing} title="Not built yet" />`;
