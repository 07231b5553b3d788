"""The compiled path: recurrent towers on a CPU, in plain C++ called through ctypes.

kernel_library.py    finds and loads what the package's build built; vectors in eight bits, and which may be nearest to
                     a query (nearest.cpp, dot_rows.h); titles by word, and the best of them for some words
                     (postings.cpp)
vector.h             sixteen floats as one value, the same bits with every instruction set
recurrent.h          chunks of texts through the steps of an LSTM or RNN and back

training.model.kernel_towers turns texts into words and trigrams (tokenise.cpp), indexes a batch (batch.cpp,
prefixes.cpp) and encodes many texts at once or one short text (encode_text.cpp). training.trainer.kernel_path computes
a minibatch's gradient and the update (gradient.cpp, click_loss.h).
"""
