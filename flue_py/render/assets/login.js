if (data.wrong) byId("wrong").textContent = "No such token.";
