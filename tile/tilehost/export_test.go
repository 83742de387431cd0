package tilehost

const RestLooks = restLooks

// Plan is gifts.
var Plan = gifts
