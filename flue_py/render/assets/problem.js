byId("why").textContent = data.why;
