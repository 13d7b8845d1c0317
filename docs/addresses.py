"""Where the sets that are read from a folder are published; their pages may move, and nothing is fetched from them."""

ADDRESSES = {
    "av_digits_speakers": "https://github.com/Jakobovski/free-spoken-digit-dataset",
    "av_mnist": "https://github.com/pliang279/MultiBench",
    "crema_d": "https://github.com/CheyneyComputerScience/CREMA-D",
    "food101_titles": "https://hal.archives-ouvertes.fr/hal-01196959",
    "hateful_memes": "https://ai.meta.com/tools/hatefulmemes/",
    "mm_imdb": "http://lisi1.unal.edu.co/mmimdb/",
    "mmsa": "https://github.com/thuiar/MMSA",
    "mosi": "http://multicomp.cs.cmu.edu/resources/cmu-mosi-dataset/",
    "nyud2": "https://cs.nyu.edu/~silberman/datasets/nyu_depth_v2.html",
    "pulsars": "https://archive.ics.uci.edu/dataset/372/htru2",
    "utd_mhad": "https://www.utdallas.edu/~kehtar/UTD-MHAD.html",
}
