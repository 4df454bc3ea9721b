"""The paper, examined: its empirical study of Markov blankets and its evaluation."""
